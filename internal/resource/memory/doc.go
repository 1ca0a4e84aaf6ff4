// Package memory decides from which NUMA nodes a container's memory and huge
// pages are to come. All of it is pure.
package memory
