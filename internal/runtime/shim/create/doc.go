// Package create creates the first process of a container in this process, as "runc create" does. The shim then
// executes no runc for a container. See ADR 41.
//
// It uses libcontainer, the library of runc, in the version of the runc beside the shim. What it leaves in runc's
// directory of state is what that runc leaves, so runc can serve the container from then on. libcontainer executes this
// program again, with the argument "init", as the container's first process: that process ends in [Init].
//
// It does not own the process, nor its standard input and output. The caller waits for it.
package create
