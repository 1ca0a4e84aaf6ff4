// Package process is what the daemons among the commands have in common: how
// signals end them, and what they tell the service manager.
package process
