// Command pressure measures eviction: how soon a pod that uses up memory is killed, and the cost of looking for
// pressure. It needs root, bin/berth and bin/workload.tar (make bench builds both). It starts agents of its own, one
// after the other, and removes everything at its end. With -out it writes the page EVICTION.md.
package main
