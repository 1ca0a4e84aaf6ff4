// Package image is the commands on images, below berth image. It owns what they
// say; where the agent is, and how results are formatted, its caller tells it.
package image
