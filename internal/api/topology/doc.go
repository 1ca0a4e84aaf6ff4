// Package topology describes the machine and the holders of its resources in the format of the local API. It is
// pure: it reads the values it is given.
package topology
