// Package oci reads files of a container's bundle: the specification, and the errors of the OCI runtime.
package oci
