package https

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api/answer"
)

// component is the agent's component name in the cluster.
const component = "kubelet"

// aboutRoutes shows and sets the agent's own state.
type aboutRoutes struct{ about About }

func (s aboutRoutes) configz(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, map[string]any{"kubeletconfig": s.about.Config})
}

func profile(w http.ResponseWriter, r *http.Request) error {
	switch r.PathValue("profile") {
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "cmdline":
		pprof.Cmdline(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
	return nil
}

func (s aboutRoutes) setVerbosity(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, 16))
	if err != nil {
		return answer.BadRequest(fmt.Sprintf("read verbosity: %v", err), "")
	}
	v, err := strconv.ParseUint(string(body), 10, 16)
	if err != nil {
		return answer.BadRequest(fmt.Sprintf("verbosity %q is not a number of at least 0", body), "")
	}
	s.about.SetVerbosity(int(v))
	writeText(w, fmt.Sprintf("successfully set klog.logging.verbosity to %d", v))
	return nil
}

// statusz is the answer to /statusz: the kind Statusz of config.k8s.io.
type statusz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	StartTime         metav1.Time `json:"startTime"`
	UptimeSeconds     int64       `json:"uptimeSeconds"`
	GoVersion         string      `json:"goVersion"`
	BinaryVersion     string      `json:"binaryVersion"`
	Paths             []string    `json:"paths"`
}

// flagz is the answer to /flagz: the kind Flagz of config.k8s.io.
type flagz struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Flags             map[string]string `json:"flags"`
}

const zpageHeader = "\n%s %s\nWarning: This endpoint is not meant to be machine parseable, has no formatting " +
	"compatibility guarantees and is for debugging purposes only.\n\n"

// statusz lists the paths that the HTTPS port serves, so it belongs to the server.
func (s *Server) statusz(w http.ResponseWriter, r *http.Request) error {
	form, version, err := zpageForm(r.Header.Get("Accept"), "Statusz")
	if err != nil {
		return err
	}
	up := time.Since(s.About.Started)
	st := statusz{
		TypeMeta:   metav1.TypeMeta{Kind: "Statusz", APIVersion: zpageGroup + "/" + version},
		ObjectMeta: metav1.ObjectMeta{Name: component},
		StartTime:  metav1.NewTime(s.About.Started), UptimeSeconds: max(0, int64(up.Seconds())),
		GoVersion: runtime.Version(), BinaryVersion: s.About.Version, Paths: listedPaths(s.served(s.Enabled)),
	}
	if form != "text" {
		return writeZpage(w, form, st)
	}
	var b strings.Builder
	fmt.Fprintf(&b, zpageHeader, component, "statusz")
	fmt.Fprintf(&b, "Started: %s\nUp: %s\nGo version: %s\nBinary version: %s\nPaths: %s\n",
		s.About.Started.UTC().Format(time.UnixDate), up.Truncate(time.Second), st.GoVersion, st.BinaryVersion,
		strings.Join(st.Paths, " "))
	writeText(w, b.String())
	return nil
}

func (s aboutRoutes) flagz(w http.ResponseWriter, r *http.Request) error {
	form, version, err := zpageForm(r.Header.Get("Accept"), "Flagz")
	if err != nil {
		return err
	}
	flags := s.about.Flags
	if form != "text" {
		return writeZpage(w, form, flagz{
			TypeMeta:   metav1.TypeMeta{Kind: "Flagz", APIVersion: zpageGroup + "/" + version},
			ObjectMeta: metav1.ObjectMeta{Name: component}, Flags: flags,
		})
	}
	var b strings.Builder
	fmt.Fprintf(&b, zpageHeader, component, "flagz")
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(&b, "%s=%s\n", name, flags[name])
	}
	writeText(w, b.String())
	return nil
}

// listedPaths returns the first element of each route's path, sorted and without duplicates.
func listedPaths(routes []route) []string {
	var paths []string
	for _, rt := range routes {
		if p := "/" + bucket(rt.path); !slices.Contains(paths, p) {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return paths
}

const zpageGroup = "config.k8s.io"

// zpageForm returns the format that an Accept header requests for a z-page: "text", "json" or "yaml". For
// json and yaml it also returns the API version of the kind (KEP-4827).
func zpageForm(accept, kind string) (form, version string, err error) {
	if strings.TrimSpace(accept) == "" {
		return "text", "", nil
	}
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		known := params["as"] == kind && params["g"] == zpageGroup &&
			(params["v"] == "v1beta1" || params["v"] == "v1alpha1")
		switch {
		case media == "text/plain" || media == "text/*" || media == "*/*":
			return "text", "", nil
		case media == "application/json" && known:
			return "json", params["v"], nil
		case media == "application/yaml" && known:
			return "yaml", params["v"], nil
		}
	}
	return "", "",
		notAcceptable(
			fmt.Sprintf("only text/plain and application/json or application/yaml with g=%s;v=v1beta1;as=%s are served",
				zpageGroup, kind))
}

func writeZpage(w http.ResponseWriter, form string, page any) error {
	if form == "json" {
		return writeJSON(w, page)
	}
	data, err := json.Marshal(page)
	if err == nil {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(data)
	return nil
}
