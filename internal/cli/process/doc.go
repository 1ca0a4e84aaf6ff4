// Package process contains the parts that the daemon commands share: logging, signals and notifications to
// the service manager.
package process
