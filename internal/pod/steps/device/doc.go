// Package device gives pods the devices that admission has booked for them in the ledger. It owns the calls of Allocate
// and the plugins' answers, which package record stores. Package supply has the plugins and their devices. The package
// chooses no device. But a plugin with a preference may exchange a booked device for a free one that is equally near to
// the chosen NUMA nodes.
//
// The step calls Allocate before the containers start. A container's start waits for the answers about its own devices
// and asks again if there is none. PreCreate adds the answers to the container's configuration. PreStart calls
// PreStartContainer.
package device
