// Package firewall keeps pods and other machines away from the loopback addresses of this machine (CVE-2020-8558), and
// users other than root away from one of them, the private address.
//
// The kernel discards packets to 127.0.0.0/8 that arrive over a network, unless route_localnet is set on the interface.
// Host ports of pods and kube-proxy need route_localnet. So the firewall drops such packets again. The rule is one that
// a kubelet keeps in its chain KUBE-FIREWALL: it spares connections that a DNAT rule has led to a loopback address, and
// the answers to connections of this machine.
//
// A runtime inside the agent serves streams (exec, attach, port-forward) over TCP. containerd's server for them has no
// bound on connections and no timeouts. So it listens on the private address, and a second rule drops what processes of
// other users send there.
//
// The firewall owns one nftables table. In the kernel a packet that another table accepts can still be dropped here, so
// the order of the tables does not matter. Each root directory has a table of its own: a reset removes it, and the
// agents of other roots keep theirs. A kernel without nftables has the rules in the iptables chains INPUT and OUTPUT
// instead.
//
// The rules stay when the agent ends, since pods run on. While the agent runs, it writes a rule again when another
// program removes it, for example by reloading a whole ruleset. The kernel announces changes of nftables. The rules of
// iptables are checked every 30 s, as often as a kubelet checks its rules.
//
// On a node of a cluster, Chains also makes the kubelet's chains of iptables, which programs of others look for.
package firewall
