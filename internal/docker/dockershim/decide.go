package dockershim

import (
	"encoding/json"
	"strings"
)

// loadedNames reads the Engine's output of a load: JSON objects with a line each. It returns the names of the images,
// or the IDs of images without one, and the reason of a failure.
func loadedNames(output string) (names []string, reason string) {
	for decoder := json.NewDecoder(strings.NewReader(output)); decoder.More(); {
		var message struct {
			Stream string `json:"stream"`
			Error  string `json:"error"`
		}
		if err := decoder.Decode(&message); err != nil {
			return names, err.Error()
		}
		if message.Error != "" {
			return names, message.Error
		}
		for line := range strings.Lines(message.Stream) {
			for _, prefix := range []string{"Loaded image: ", "Loaded image ID: "} {
				if name, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
					names = append(names, fullName(name))
				}
			}
		}
	}
	return names, ""
}
