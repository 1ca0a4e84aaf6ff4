// Package record writes what the shim knows of a container to the file task.json in the container's bundle. A shim that
// was killed leaves it to the next one.
package record
