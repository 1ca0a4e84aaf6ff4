package tasks

import (
	"encoding/json"
	"fmt"

	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/anypb"
)

// criuConfig is the name of CRIU's configuration file in a bundle. The shim writes it for a checkpoint or a restore.
const criuConfig = "criu.conf"

// withCRIUConfig returns a container's specification with the path of CRIU's configuration file, as runc expects it.
// CRIU ignores a missing file.
func withCRIUConfig(spec typeurl.Any, path string) (typeurl.Any, error) {
	var fields map[string]json.RawMessage
	annotations := map[string]string{}
	err := json.Unmarshal(spec.GetValue(), &fields)
	if err == nil && fields["annotations"] != nil {
		err = json.Unmarshal(fields["annotations"], &annotations)
	}
	if err != nil {
		return nil, fmt.Errorf("read the specification of a container: %w", err)
	}
	annotations["org.criu.config"] = path
	if fields["annotations"], err = json.Marshal(annotations); err != nil {
		return nil, err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: spec.GetTypeUrl(), Value: text}, nil
}
