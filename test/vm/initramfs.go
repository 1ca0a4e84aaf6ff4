package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// modules are the kernel modules that the guest needs, without their dependencies. The last two lines are for CRIU,
// which asks the kernel for all sockets and for the connections that it tracks. Without nf_conntrack_netlink the kernel
// answers that with EINVAL.
const modules = `virtio_pci virtio_blk virtio_net overlay veth bridge loop dm_flakey nfsv4 nfsd xfs quota_v2
	nf_tables nft_chain_nat nft_ct nft_masq nft_nat nft_redir nft_fib_inet nft_reject_inet nft_limit nft_compat
	sd_mod iscsi_tcp iscsi_target_mod target_core_file tcm_loop
	xt_comment xt_mark xt_conntrack xt_MASQUERADE xt_addrtype
	af_packet_diag inet_diag netlink_diag raw_diag tcp_diag udp_diag unix_diag
	nf_conntrack_netlink tun`

// job describes the work of the guest. It is the file /job in the initramfs.
type job struct {
	Machine  string // see boot
	Cluster  string // a kubeapitest.Remote as JSON, or empty without a control plane
	Modules  []string
	Commands []command
}

type command struct {
	Dir     string
	Args    []string
	Cluster bool // the command needs a control plane
}

// initramfs writes the archive that the kernel starts from: init, the modules and the job.
func initramfs(path string, on platform, j job) error {
	all, err := moduleFiles(on.kernel)
	if err != nil {
		return err
	}
	order, err := loadOrder(strings.Fields(modules), func(name string) ([]string, error) { return depends(all[name]) })
	if err != nil {
		return err
	}
	var archive cpio
	init, err := os.ReadFile(on.init)
	if err != nil {
		return err
	}
	archive.add("init", 0o755, init)
	for _, name := range order {
		data, err := os.ReadFile(all[name])
		if err != nil {
			return err
		}
		archive.add(name+".ko", 0o644, data)
	}
	j.Modules = order
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	archive.add("job", 0o644, text)
	return os.WriteFile(path, archive.end(), 0o644)
}

// moduleFiles returns the files of a kernel's modules by module name. Module names have _ where file names have - or _.
func moduleFiles(kernel string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(kernel, "lib/modules"), func(path string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			files[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	return files, err
}

// depends reads the dependencies of a module from its section .modinfo: "depends=a,b".
func depends(path string) ([]string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // opened for reading, so closing cannot lose data
	section := file.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s has no section .modinfo", path)
	}
	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for entry := range strings.SplitSeq(string(data), "\x00") {
		if names, ok := strings.CutPrefix(entry, "depends="); ok && names != "" {
			return strings.Split(strings.ReplaceAll(names, "-", "_"), ","), nil
		}
	}
	return nil, nil
}

// loadOrder sorts modules, and adds their dependencies, so that every module comes after the modules it depends on.
func loadOrder(names []string, depends func(string) ([]string, error)) ([]string, error) {
	var order []string
	for _, name := range names {
		if slices.Contains(order, name) {
			continue
		}
		needs, err := depends(name)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
		before, err := loadOrder(needs, depends)
		if err != nil {
			return nil, err
		}
		for _, m := range append(before, name) {
			if !slices.Contains(order, m) {
				order = append(order, m)
			}
		}
	}
	return order, nil
}

// cpio is an archive in the format "newc" (kernel: driver-api/early-userspace/buffer-format).
type cpio struct {
	buf   bytes.Buffer
	inode int
}

func (c *cpio) add(name string, mode int, data []byte) {
	c.inode++
	const regular = 0o100000
	links, length := 1, len(name)+1
	fmt.Fprintf(&c.buf, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.inode, regular|mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, length, 0, name)
	c.pad()
	c.buf.Write(data)
	c.pad()
}

// pad fills the archive up to a multiple of 4 bytes.
func (c *cpio) pad() {
	for c.buf.Len()%4 != 0 {
		c.buf.WriteByte(0)
	}
}

func (c *cpio) end() []byte {
	c.add("TRAILER!!!", 0, nil)
	return c.buf.Bytes()
}
