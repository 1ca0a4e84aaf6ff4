// Package objects has the commands about what pods name besides themselves:
// "berth get configmaps", "berth delete secret NAME". It owns how they are shown.
package objects
