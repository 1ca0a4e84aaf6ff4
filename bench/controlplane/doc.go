// Package controlplane lets bench use the control plane of the tests, although bench is no test.
package controlplane
