// Package packetfilter finds out which packet filters work on this machine: nftables, and iptables for kernels without
// it. It writes no rules.
package packetfilter
