package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// findings are the things on the machine by kind. A thing may be there several times.
type findings map[string][]string

// since lists the things that are in now and not in before, with their kinds.
func since(before, now findings) (left []string) {
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		known := map[string]int{}
		for _, thing := range before[kind] {
			known[thing]++
		}
		for _, thing := range now[kind] {
			if known[thing]--; known[thing] < 0 {
				left = append(left, kind+" "+thing)
			}
		}
	}
	return left
}

var (
	counter = regexp.MustCompile(` counter packets \d+ bytes \d+`)
	handle  = regexp.MustCompile(` # handle \d+$`)
	// ofPod matches rules and chains that CNI plugins have made for one pod: they have the start of its ID, or a hash.
	// It matches a kubelet's chains too.
	ofPod = regexp.MustCompile(`[0-9a-f]{32}|CNI-DN-|CNI-[0-9a-f]{8}|KUBE-`)
)

// common are the tables that all users of CNI plugins and iptables share. The plugins never remove them. Only rules and
// chains of pods count there.
func common() []string {
	return []string{
		"table inet cni_plugins_masquerade", "table ip cni_hostport", "table ip6 cni_hostport",
		"table ip nat", "table ip6 nat", "table ip filter", "table ip6 filter", "table ip mangle", "table ip6 mangle",
	}
}

// rules reads the output of "nft list ruleset".
func rules(ruleset string) (all []string) {
	table := ""
	for line := range strings.Lines(ruleset) {
		line = handle.ReplaceAllString(counter.ReplaceAllString(strings.TrimSpace(line), ""), "")
		if strings.HasPrefix(line, "table ") {
			table = strings.TrimSuffix(line, " {")
			if !slices.Contains(common(), table) {
				all = append(all, table)
			}
			continue
		}
		if line == "" || line == "}" || strings.HasPrefix(line, "#") {
			continue
		}
		if !slices.Contains(common(), table) || ofPod.MatchString(line) {
			all = append(all, table+": "+strings.TrimSuffix(line, " {"))
		}
	}
	return all
}

// ourPrograms are the names of the programs that tests run.
var ourPrograms = regexp.MustCompile(
	`^(berth.*|cluster|workload|holder|pause|runc|containerd.*|etcd|kube.*|qemu-.*|.*\.test)$`)

// ourCgroup matches the path of a cgroup that tests make.
var ourCgroup = regexp.MustCompile(`berth|kubepods|cri-containerd`)
