// Package objects implements the commands for the objects that pods use: "berth get configmaps", "berth
// delete secret NAME". It owns how they are printed.
package objects
