package sandbox

import (
	"fmt"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// writeResolvConf replaces the content of the resolv.conf that Docker has made for a sandbox. Docker mounts the same
// file into all containers of the pod, so it is written in place. Without a configuration the file keeps Docker's
// content, which comes from the machine.
func writeResolvConf(path string, dns *runtimeapi.DNSConfig) error {
	if dns == nil || path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("write resolv.conf of a sandbox: %w", err)
	}
	_, err = file.WriteString(resolvConf(dns))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write resolv.conf of a sandbox: %w", err)
	}
	return nil
}
