package flexvolume

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// source is the source of a volume, from the pod's spec or from a PersistentVolume.
type source struct {
	driver, name, fsType string
	options              map[string]string
	readOnly             bool
	secret               *corev1.SecretReference
}

func sourceOf(r volume.Request) source {
	if r.Persistent == nil {
		f := r.Volume.FlexVolume
		s := source{driver: f.Driver, name: r.Volume.Name, fsType: f.FSType, options: f.Options, readOnly: f.ReadOnly}
		if f.SecretRef != nil {
			s.secret = &corev1.SecretReference{Namespace: r.Pod.Namespace, Name: f.SecretRef.Name}
		}
		return s
	}
	f := r.Persistent.Spec.FlexVolume
	s := source{driver: f.Driver, name: r.Persistent.Name, fsType: f.FSType, options: f.Options, readOnly: r.ReadOnly}
	if f.SecretRef != nil {
		s.secret = f.SecretRef.DeepCopy()
		if s.secret.Namespace == "" {
			s.secret.Namespace = r.Pod.Namespace
		}
	}
	return s
}

// Keys of the options that the agent adds for the driver.
const (
	keyFSType  = "kubernetes.io/fsType"
	keyWrite   = "kubernetes.io/readwrite"
	keyName    = "kubernetes.io/pvOrVolumeName"
	keySecret  = "kubernetes.io/secret/"
	keyPod     = "kubernetes.io/pod.name"
	keySpace   = "kubernetes.io/pod.namespace"
	keyUID     = "kubernetes.io/pod.uid"
	keyAccount = "kubernetes.io/serviceAccount.name"
	keyGroup   = "kubernetes.io/mounterArgs.FsGroup"
)

// deviceOptions returns the driver's options of calls about the device. The volume's own options win.
func deviceOptions(s source) map[string]string {
	all := map[string]string{keyFSType: s.fsType, keyWrite: "rw", keyName: s.name}
	if s.readOnly {
		all[keyWrite] = "ro"
	}
	maps.Copy(all, s.options)
	return all
}

// mountOptions returns the driver's options of a mount for a pod. secret is the content of the volume's Secret. The
// volume's own options win.
func mountOptions(s source, p *corev1.Pod, secret map[string][]byte) map[string]string {
	all := deviceOptions(s)
	all[keyPod], all[keySpace], all[keyUID], all[keyAccount] = p.Name, p.Namespace, string(p.UID),
		p.Spec.ServiceAccountName
	for key, value := range secret {
		all[keySecret+key] = base64.StdEncoding.EncodeToString(value)
	}
	if c := p.Spec.SecurityContext; c != nil && c.FSGroup != nil {
		all[keyGroup] = strconv.FormatInt(*c.FSGroup, 10)
	}
	maps.Copy(all, s.options)
	return all
}

// encode returns options as the argument of a call.
func encode(options map[string]string) string {
	text, _ := json.Marshal(options) // a map of strings always has JSON
	return string(text)
}

// dirOf returns the name of a driver's directory: vendor~name for "vendor/name".
func dirOf(driver string) string { return strings.ReplaceAll(driver, "/", "~") }

// checkDriver refuses a name that would lead to a path outside the directories of drivers.
func checkDriver(driver string) error {
	parts := strings.Split(driver, "/")
	for _, part := range parts {
		if err := safepath.Name(part); err != nil || strings.HasPrefix(part, ".") || strings.Contains(part, "~") {
			return fmt.Errorf("invalid name %q of a FlexVolume driver: it must be vendor/driver", driver)
		}
	}
	if len(parts) > 2 {
		return fmt.Errorf("invalid name %q of a FlexVolume driver: it must be vendor/driver", driver)
	}
	return nil
}

// capabilities are the abilities of a driver. A driver that does not name one has the default.
type capabilities struct {
	Attach  bool `json:"attach"`
	Relabel bool `json:"selinuxRelabel"`
	FSGroup bool `json:"fsGroup"`
}

// answer is the output of a driver.
type answer struct {
	Status       string        `json:"status"`
	Message      string        `json:"message"`
	Device       string        `json:"device"`
	Capabilities *capabilities `json:"capabilities"`
}

// errUnsupported is the answer of a driver that does not implement a call.
var errUnsupported = errors.New("not supported by the driver")

// parse reads the output of a driver. The error is for an output that is not an answer, and for every status except
// Success.
func parse(output []byte) (answer, error) {
	a := answer{Capabilities: &capabilities{Attach: true, Relabel: true, FSGroup: true}}
	if err := json.Unmarshal(output, &a); err != nil {
		return a, fmt.Errorf("the driver's answer is not JSON: %w: %.200q", err, output)
	}
	switch a.Status {
	case "Success":
		return a, nil
	case "Not supported":
		return a, errUnsupported
	}
	return a, fmt.Errorf("status %q: %s", a.Status, a.Message)
}
