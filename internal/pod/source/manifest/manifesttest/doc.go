// Package manifesttest makes manifests and pods for tests.
package manifesttest
