// Package oci reads what a container's bundle and its OCI runtime say: the specification, and the runtime's errors.
package oci
