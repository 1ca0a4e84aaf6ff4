package iscsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/base/program"
)

// adminTimeout bounds one call of iscsiadm. With its defaults a login to a target that does not answer takes 2 minutes.
const adminTimeout = 150 * time.Second

// Exit codes of iscsiadm(8).
const (
	exitExists = 15 // the session exists
	exitNone   = 21 // there is no such record or session
)

// admin calls iscsiadm. Errors never contain the arguments, which may be passwords.
func admin(ctx context.Context, what string, args ...string) (string, error) {
	out, err := program.Run(ctx, adminTimeout, "iscsiadm", args...)
	if err == nil {
		return string(out.Stdout), nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s: iscsiadm is not installed; next: install open-iscsi, and start iscsid: %w", what,
			err)
	}
	text := strings.TrimSpace(string(out.Stderr))
	if text == "" {
		text = strings.TrimSpace(string(out.Stdout))
	}
	return "", fmt.Errorf("%s: %w: %.500s", what, err, strings.ReplaceAll(text, "\n", "; "))
}

// exitCode returns the exit code of iscsiadm, or -1.
func exitCode(err error) int {
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return failed.ExitCode()
	}
	return -1
}

// The names of CHAP's settings, which are also the keys of a volume's Secret.
const (
	discovery = "discovery.sendtargets.auth."
	session   = "node.session.auth."
)

// login begins a session with a target through a portal. A session that exists is no error.
func login(ctx context.Context, s source, portal string, secret map[string][]byte) error {
	db := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", s.iface()}
	node := []string{"-m", "node", "-p", portal, "-T", s.iqn, "-I", s.iface()}
	with := func(args []string, more ...string) []string { return slices.Concat(args, more) }
	_, _ = admin(ctx, "", with(db, "-o", "new")...) // the record may exist, and the next call says what is wrong
	if err := authenticate(ctx, db, discovery, s.discoveryCHAP, secret); err != nil {
		return err
	}
	what := "discover the targets of portal " + portal
	if _, err := admin(ctx, what, with(db, "--discover")...); err != nil {
		_, _ = admin(ctx, "", with(db, "-o", "delete")...)
		return err
	}
	if err := authenticate(ctx, node, session, s.sessionCHAP, secret); err != nil {
		return err
	}
	// The kernel gets no other disks of the target. Older versions of open-iscsi lack the setting.
	_, _ = admin(ctx, "", with(node, "-o", "update", "-n", "node.session.scan", "-v", "manual")...)
	what = fmt.Sprintf("log in to %s through portal %s", s.iqn, portal)
	if _, err := admin(ctx, what, with(node, "--login")...); err != nil && exitCode(err) != exitExists {
		_, _ = admin(ctx, "", with(node, "-o", "delete")...)
		return err
	}
	// After a reboot the agent begins the session, not the machine, which would wait for it.
	what = "set the session to manual"
	_, err := admin(ctx, what, with(node, "-o", "update", "-n", "node.startup", "-v", "manual")...)
	return err
}

// authenticate sets the names and passwords of CHAP, if the volume asks for it.
func authenticate(ctx context.Context, target []string, prefix string, wanted bool, secret map[string][]byte) error {
	if !wanted {
		return nil
	}
	set := func(key, value string) error {
		_, err := admin(ctx, "set "+key, slices.Concat(target, []string{"-o", "update", "-n", key, "-v", value})...)
		return err
	}
	if err := set(prefix+"authmethod", "CHAP"); err != nil {
		return err
	}
	for _, field := range []string{"username", "password", "username_in", "password_in"} {
		if value := string(secret[prefix+field]); value != "" {
			if err := set(prefix+field, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// logout ends a session, if there is one, and deletes its record.
func logout(ctx context.Context, r record, portal string, isUp bool) error {
	node := []string{"-m", "node", "-p", portal, "-T", r.Iqn, "-I", r.Iface}
	what := fmt.Sprintf("log out of %s through portal %s", r.Iqn, portal)
	if isUp {
		if _, err := admin(ctx, what, slices.Concat(node, []string{"--logout"})...); err != nil &&
			exitCode(err) != exitNone {
			return err
		}
	}
	_, _ = admin(ctx, "", slices.Concat(node, []string{"-o", "delete"})...) // it may be gone, and begins no session
	return nil
}

// makeIface makes the interface of a volume with an initiator name of its own, as a copy of the one that it names.
func makeIface(ctx context.Context, s source) error {
	what := "make interface " + s.iface()
	text, err := admin(ctx, what, "-m", "iface", "-I", s.base, "-o", "show")
	if err != nil {
		return err
	}
	_, _ = admin(ctx, "", "-m", "iface", "-I", s.iface(), "-o", "new") // it may exist
	for _, set := range append(settings(text), [2]string{"iface.initiatorname", s.initiator}) {
		if _, err := admin(ctx, what, "-m", "iface", "-I", s.iface(), "-o", "update", "-n", set[0], "-v",
			set[1]); err != nil {
			return err
		}
	}
	return nil
}

// removeIface removes an interface. It need not exist.
func removeIface(ctx context.Context, name string) error {
	if _, err := admin(ctx, "", "-m", "iface", "-I", name, "-o", "show"); err != nil {
		return nil //nolint:nilerr // it is gone
	}
	_, err := admin(ctx, "remove interface "+name, "-m", "iface", "-I", name, "-o", "delete")
	return err
}

// link is one session of the kernel with a target.
type link struct {
	portal string
	iface  string
	host   string // the SCSI host, such as host2
	dir    string // the session's directory in /sys
}

// links returns the kernel's sessions with a target.
func (k *Kind) links(iqn string) []link {
	sessions, _ := filepath.Glob(k.o.Machine.InSys("class/iscsi_session/session*")) // the pattern is valid
	var all []link
	for _, at := range sessions {
		if value(at, "targetname") != iqn {
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Join(at, "device"))
		if err != nil {
			continue // it ended meanwhile
		}
		l := link{iface: value(at, "ifacename"), host: filepath.Base(filepath.Dir(dir)), dir: dir}
		id := strings.TrimPrefix(filepath.Base(at), "session")
		connections, _ := filepath.Glob(k.o.Machine.InSys("class/iscsi_connection/connection" + id + ":*"))
		for _, c := range connections {
			l.portal = joined(value(c, "persistent_address"), value(c, "persistent_port"))
			if portal, err := portalOf(l.portal); err == nil { // an administrator may have written a name
				l.portal = portal
			}
		}
		all = append(all, l)
	}
	return all
}

// joined is an address and a port as one text.
func joined(address, port string) string {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return address + ":" + port
}

// disk returns the disk with a logical unit number of a session, or "" if the kernel has not found it.
func (k *Kind) disk(l link, lun string) string {
	found, _ := filepath.Glob(filepath.Join(l.dir, "target*", "*:*:*:"+lun, "block", "*")) // the pattern is valid
	for _, at := range found {
		return k.o.Machine.InDev(filepath.Base(at))
	}
	return ""
}

func value(dir, name string) string {
	text, _ := os.ReadFile(filepath.Join(dir, name)) // what cannot be read is empty
	return strings.TrimSpace(string(text))
}
