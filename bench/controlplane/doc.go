// Package controlplane lets bench, which is no test, use the control plane that is made for tests.
package controlplane
