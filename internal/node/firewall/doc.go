// Package firewall keeps pods and other machines away from the loopback addresses of this machine (CVE-2020-8558).
//
// The kernel discards packets to 127.0.0.0/8 that arrive over a network, unless route_localnet is set on the interface.
// Host ports of pods and kube-proxy need route_localnet. So the firewall drops such packets again. It has one rule,
// which a kubelet keeps in its chain KUBE-FIREWALL: it spares connections that a DNAT rule has led to a loopback
// address, and the answers to connections of this machine.
//
// The firewall owns one nftables table. In the kernel a packet that another table accepts can still be dropped here, so
// the order of the tables does not matter. Each root directory has a table of its own: a reset removes it, and the
// agents of other roots keep theirs. A kernel without nftables has a rule in the iptables chain INPUT instead.
//
// The rule stays when the agent ends, since pods run on. While the agent runs, it writes the rule again when another
// program removes it, for example by reloading a whole ruleset. The kernel announces changes of nftables. The rule of
// iptables is checked every 30 s, as often as a kubelet checks its rules.
//
// On a node of a cluster, Chains also makes the kubelet's chains of iptables, which programs of others look for.
package firewall
