package join

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi"
	"github.com/berth-run/berth/internal/pod/steps/volume/csi/driver"
)

func TestNewsReachesTheLoopsThatNeedIt(t *testing.T) {
	type raised struct{ Requests, Sets bool }
	for name, c := range map[string]struct {
		key  object.Key
		want raised
	}{
		"a Secret":              {object.Key{Kind: object.Secret, Name: "a"}, raised{}},
		"a certificate request": {object.CertificateRequests(), raised{Requests: true}},
		"a Service":             {object.Key{Kind: object.Service, Name: "a"}, raised{Sets: true}},
		"a trust bundle":        {object.Key{Kind: object.ClusterTrustBundle, Name: "a"}, raised{Sets: true}},
		"a CSI driver":          {driver.Key("a"), raised{Sets: true}},
	} {
		n := news{pods: wake.NewSet[object.Key](), requests: wake.New(), sets: wake.New()}
		n.AddAll(map[object.Key]bool{c.key: true})
		is := func(s wake.Signal) bool {
			select {
			case <-s.C():
				return true
			default:
				return false
			}
		}
		if d := cmp.Diff(c.want, raised{is(n.requests), is(n.sets)}); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		if d := cmp.Diff(map[object.Key]bool{c.key: true}, n.pods.Take()); d != "" {
			t.Errorf("%s: pods hear of (-want +got):\n%s", name, d)
		}
	}
}

// A standalone agent has the objects of manifests, and unmounts volumes that are left from a cluster.
func TestConnectWithoutACluster(t *testing.T) {
	m, err := Connect(Options{Config: &config.Config{RootDir: "/root"}, Sources: source.New(source.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	access := m.Access()
	if access.Objects == nil || access.Client != nil || access.Conditions != nil || len(access.Steps) > 0 {
		t.Errorf("access: %+v", access)
	}
	if d := cmp.Diff([]volume.Kind{csi.Left{Root: "/root"}}, access.Kinds); d != "" {
		t.Errorf("kinds of volumes (-want +got):\n%s", d)
	}
	if err := m.Reports(Node{}).Run(t.Context()); err != nil {
		t.Errorf("reports: %v", err)
	}
}
