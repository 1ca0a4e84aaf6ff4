package tasks

import (
	"encoding/json"
	"fmt"

	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/berth-run/berth/internal/base/logfile"
)

// criuConfig is the name of CRIU's configuration file in a bundle. The shim writes it for a checkpoint or a restore.
const criuConfig = "criu.conf"

// readSpec reads a container's specification: whether the shim logs its output. It returns the specification with the
// path of CRIU's configuration file, as runc expects it. CRIU ignores a missing file.
func readSpec(spec typeurl.Any, path string) (_ typeurl.Any, logged bool, err error) {
	var fields map[string]json.RawMessage
	annotations := map[string]string{}
	err = json.Unmarshal(spec.GetValue(), &fields)
	if err == nil && fields["annotations"] != nil {
		err = json.Unmarshal(fields["annotations"], &annotations)
	}
	if err != nil {
		return nil, false, fmt.Errorf("read the specification of a container: %w", err)
	}
	annotations["org.criu.config"] = path
	if fields["annotations"], err = json.Marshal(annotations); err != nil {
		return nil, false, err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, false, err
	}
	return &anypb.Any{TypeUrl: spec.GetTypeUrl(), Value: text}, annotations[logfile.Annotation] != "", nil
}
