// Package usage reads what a CSI driver reports about a volume: its usage, and its condition.
package usage
