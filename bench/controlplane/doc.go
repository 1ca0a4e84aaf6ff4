// Package controlplane lends bench a control plane that is meant for tests.
package controlplane
