// Package memory decides which NUMA nodes the memory and huge pages of a container come from (KEP-1769). It is pure.
//
// State holds the memory of each node and the amounts that pods hold. Offers lists the nodes that could serve a
// request. Package topology merges them with the offers of other resources. Allocate chooses the nodes from the result
// of that merge. The choice becomes the container's cpuset.mems. The amount is not enforced here: the container's
// memory cgroup limits it.
package memory
