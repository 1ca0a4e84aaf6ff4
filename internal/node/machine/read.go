package machine

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/cpulist"
)

// The kernel's directories (Documentation/ABI/stable/sysfs-devices-{system-cpu,node}).
const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
	pageDir = "sys/kernel/mm/hugepages"
)

// Read reads the machine from sys and proc below root; for the machine it runs on, root is os.DirFS("/"). It fills in
// values that virtual machines, containers and old kernels leave out. Without topology each CPU is a core on socket 0.
// Without NUMA nodes there is one node, 0. Without sysfs it reads the CPUs from /proc/cpuinfo. Unknown memory is 0.
// Read fails if it finds no CPU, or if a file is not in the documented format.
func Read(root fs.FS) (Machine, error) {
	r := &reader{root: root}
	online := r.online()
	if len(online) == 0 && r.err == nil {
		r.err = fmt.Errorf("no CPU in %s and /proc/cpuinfo: are /sys and /proc mounted?", "/"+cpuDir)
	}
	all := cpuset.New(online...)
	m := Machine{Offline: r.present().Difference(all)}
	m.Nodes = r.nodes(all)
	for _, id := range online {
		m.CPUs = append(m.CPUs, r.cpu(id, all, m.Nodes))
	}
	m.Caches, m.Lower = lastLevel(m.ByCore(), r.caches(all))
	nameCaches(&m)
	if r.err != nil {
		return Machine{}, fmt.Errorf("read machine: %w", r.err)
	}
	return m, nil
}

// reader keeps the first error, so that its callers need not check each file. A file that is missing or unreadable, as
// for CPUs that are going offline, counts as empty. Content after a NUL byte is ignored, because some tools copy sysfs
// in whole pages.
type reader struct {
	root fs.FS
	err  error
}

func (r *reader) text(name string) string {
	data, err := fs.ReadFile(r.root, name)
	if err != nil {
		return ""
	}
	text, _, _ := strings.Cut(string(data), "\x00")
	return strings.TrimSpace(text)
}

func (r *reader) fail(name string, err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("/%s: %w", name, err)
	}
}

func (r *reader) list(name string) cpuset.CPUSet {
	set, err := cpulist.Set(r.text(name))
	r.fail(name, err)
	return set
}

// number parses a file. It returns absent if there is no such file.
func (r *reader) number(name string, absent int) int {
	text := r.text(name)
	if text == "" {
		return absent
	}
	n, err := strconv.Atoi(text)
	r.fail(name, err)
	return n
}

// set parses the CPUs of the first of these files that exists: a list, or a mask as in kernels before 2.6.25.
func (r *reader) set(lists []string, mask string) cpuset.CPUSet {
	for _, name := range lists {
		if set := r.list(name); !set.IsEmpty() {
			return set
		}
	}
	text := r.text(mask)
	if text == "" {
		return cpuset.New()
	}
	ids, err := cpulist.Mask(text)
	r.fail(mask, err)
	return cpuset.New(ids...)
}

// numbered returns the numbers of the directory's entries with this prefix.
func (r *reader) numbered(dir, prefix string) []int {
	entries, _ := fs.ReadDir(r.root, dir)
	var ids []int
	for _, e := range entries {
		if id, ok := number(e.Name(), prefix); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (r *reader) online() []int {
	if set := r.list(path.Join(cpuDir, "online")); !set.IsEmpty() {
		return set.List()
	}
	ids := slices.DeleteFunc(r.numbered(cpuDir, "cpu"), func(id int) bool {
		return r.number(path.Join(cpuDir, "cpu"+strconv.Itoa(id), "online"), 1) == 0
	})
	if len(ids) == 0 {
		ids = cpuset.New(parseProcessors([]byte(r.text("proc/cpuinfo")))...).List()
	}
	return ids
}

// present returns the CPUs that are built in. Some architectures also have directories for CPUs that could be added.
func (r *reader) present() cpuset.CPUSet {
	if set := r.list(path.Join(cpuDir, "present")); !set.IsEmpty() {
		return set
	}
	return cpuset.New(r.numbered(cpuDir, "cpu")...)
}

func (r *reader) cpu(id int, online cpuset.CPUSet, nodes []Node) CPU {
	dir := path.Join(cpuDir, "cpu"+strconv.Itoa(id), "topology")
	threads := r.set([]string{path.Join(dir, "core_cpus_list"), path.Join(dir, "thread_siblings_list")},
		path.Join(dir, "thread_siblings"))
	return CPU{
		ID:   id,
		Core: slices.Min(threads.Intersection(online).Union(cpuset.New(id)).UnsortedList()),
		// -1 means that the firmware does not report it.
		Socket: max(0, r.number(path.Join(dir, "physical_package_id"), 0)),
		Node:   nodeOf(id, nodes),
	}
}

func nodeOf(cpu int, nodes []Node) int {
	for _, n := range nodes {
		if n.CPUs.Contains(cpu) {
			return n.ID
		}
	}
	return nodes[0].ID
}

func (r *reader) nodes(online cpuset.CPUSet) []Node {
	ids := r.list(path.Join(nodeDir, "online")).List()
	if len(ids) == 0 {
		ids = r.numbered(nodeDir, "node")
	}
	if len(ids) == 0 {
		return []Node{{CPUs: online, Memory: r.memory("proc/meminfo"), HugePages: r.hugePages(pageDir)}}
	}
	nodes := make([]Node, 0, len(ids))
	left := online
	for _, id := range ids {
		dir := path.Join(nodeDir, "node"+strconv.Itoa(id))
		cpus := r.set([]string{path.Join(dir, "cpulist")}, path.Join(dir, "cpumap")).Intersection(left)
		left = left.Difference(cpus)
		nodes = append(nodes, Node{
			ID: id, CPUs: cpus, Memory: r.memory(path.Join(dir, "meminfo")),
			HugePages: r.hugePages(path.Join(dir, "hugepages")),
			Distances: r.distances(path.Join(dir, "distance"), ids),
		})
	}
	nodes[0].CPUs = nodes[0].CPUs.Union(left)
	return wholeMemory(nodes, func() int64 { return r.memory("proc/meminfo") })
}

// wholeMemory assigns the machine's memory to a single node that does not report its own.
func wholeMemory(nodes []Node, total func() int64) []Node {
	if len(nodes) == 1 && nodes[0].Memory == 0 {
		nodes[0].Memory = total()
	}
	return nodes
}

func (r *reader) memory(name string) int64 {
	text := r.text(name)
	if text == "" {
		return 0
	}
	size, err := parseMemTotal(text)
	r.fail(name, err)
	return size
}

func (r *reader) hugePages(dir string) map[int64]int64 {
	entries, _ := fs.ReadDir(r.root, dir)
	pages := map[int64]int64{}
	for _, e := range entries {
		if size, ok := pageSize(e.Name()); ok {
			pages[size] = int64(r.number(path.Join(dir, e.Name(), "nr_hugepages"), 0))
		}
	}
	return pages
}

// distances parses one distance for each online node in the order of their ids. Some kernels with offline nodes list
// one for each possible node instead.
func (r *reader) distances(name string, ids []int) map[int]int {
	values := strings.Fields(r.text(name))
	if len(values) != len(ids) {
		ids = r.list(path.Join(nodeDir, "possible")).List()
	}
	if len(values) == 0 || len(values) != len(ids) {
		return nil
	}
	distances := make(map[int]int, len(ids))
	for i, v := range values {
		d, err := strconv.Atoi(v)
		r.fail(name, err)
		distances[ids[i]] = d
	}
	return distances
}

// caches returns all data caches without duplicates.
func (r *reader) caches(online cpuset.CPUSet) []Cache {
	type key struct{ level, id int }
	found := map[key]Cache{}
	for _, id := range online.List() {
		dir := path.Join(cpuDir, "cpu"+strconv.Itoa(id), "cache")
		for _, index := range r.numbered(dir, "index") {
			in := path.Join(dir, "index"+strconv.Itoa(index))
			if r.text(path.Join(in, "type")) == "Instruction" {
				continue
			}
			c := Cache{Level: r.number(path.Join(in, "level"), 0)}
			c.CPUs = r.set([]string{path.Join(in, "shared_cpu_list")},
				path.Join(in, "shared_cpu_map")).Union(cpuset.New(id)).Intersection(online)
			c.ID = slices.Min(c.CPUs.UnsortedList())
			if _, known := found[key{c.Level, c.ID}]; known {
				continue
			}
			if size := r.text(path.Join(in, "size")); size != "" {
				var err error
				c.Size, err = parseSize(size)
				r.fail(path.Join(in, "size"), err)
			}
			found[key{c.Level, c.ID}] = c
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Cache) int {
		if a.Level != b.Level {
			return b.Level - a.Level
		}
		return a.ID - b.ID
	})
}
