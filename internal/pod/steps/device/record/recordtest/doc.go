// Package recordtest makes the checkpoints that a kubelet writes, for tests.
package recordtest
