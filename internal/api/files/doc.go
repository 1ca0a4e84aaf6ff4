// Package files reads and writes files of running containers for "berth cp". It keeps no state of its own.
package files
