// Package process finds the processes of the machine in /proc.
package process
