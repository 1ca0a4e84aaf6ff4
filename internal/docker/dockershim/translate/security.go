package translate

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// profiles are the security options of a container.
type profiles struct {
	seccomp, apparmor *runtimeapi.SecurityProfile
	// seccompText is the text of a seccomp profile of the machine.
	seccompText string
	selinux     *runtimeapi.SELinuxOption
	noNewPrivs  bool
	// byDefault means that a container without a seccomp profile gets Docker's default. Otherwise it gets none, as in
	// containerd.
	byDefault bool
}

// security returns the security options that Docker gets.
func (f Facts) security(p profiles) (all []string, err error) {
	if p.noNewPrivs {
		all = append(all, "no-new-privileges")
	}
	switch {
	case p.seccomp.GetProfileType() == runtimeapi.SecurityProfile_Localhost:
		all = append(all, "seccomp="+p.seccompText)
	case p.seccomp == nil && !p.byDefault, p.seccomp.GetProfileType() == runtimeapi.SecurityProfile_Unconfined:
		all = append(all, "seccomp=unconfined")
	}
	switch p.apparmor.GetProfileType() {
	case runtimeapi.SecurityProfile_Localhost:
		if !f.AppArmor {
			return nil, status.Errorf(codes.InvalidArgument,
				"AppArmor profile %s: Docker does not confine containers with AppArmor on this machine",
				p.apparmor.GetLocalhostRef())
		}
		all = append(all, "apparmor="+p.apparmor.GetLocalhostRef())
	case runtimeapi.SecurityProfile_Unconfined:
		if f.AppArmor {
			all = append(all, "apparmor=unconfined")
		}
	case runtimeapi.SecurityProfile_RuntimeDefault: // Docker's own
	}
	for _, label := range []struct{ name, value string }{
		{"user", p.selinux.GetUser()}, {"role", p.selinux.GetRole()}, {"type", p.selinux.GetType()},
		{"level", p.selinux.GetLevel()},
	} {
		if label.value != "" {
			all = append(all, "label="+label.name+":"+label.value)
		}
	}
	return all, nil
}

// appArmor returns the profile of a container. Older callers of the CRI set its name alone.
func appArmor(c *runtimeapi.LinuxContainerSecurityContext) *runtimeapi.SecurityProfile {
	const local = "localhost/"
	name := c.GetApparmorProfile() //nolint:staticcheck // older callers set it
	switch {
	case c.GetApparmor() != nil:
		return c.GetApparmor()
	case name == "unconfined":
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case len(name) > len(local) && name[:len(local)] == local:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: name[len(local):]}
	}
	return nil
}
