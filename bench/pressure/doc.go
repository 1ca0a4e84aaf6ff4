// Command pressure measures eviction: how soon a pod that takes memory is killed, and what it costs to look for
// pressure. It needs root, bin/berth and bin/workload.tar (make bench builds both). It starts agents of its own, one
// after the other, and removes everything at its end. With -out it writes the page EVICTION.md.
package main
