// Package usage reads a CSI driver's reports about a volume: its usage, and its condition.
package usage
