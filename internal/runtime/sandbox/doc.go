// Package sandbox is the sandbox controller of the embedded runtime: it starts and ends what a pod has apart from its
// containers. That is a holder (package holder), which keeps the pod's namespaces open, the files that the CRI plugin
// mounts into containers, and the sandbox's cgroup.
//
// The CRI plugin calls the [Controller] and keeps its own record of each sandbox. The network namespace and the pod
// network are the plugin's.
//
//	Create --> created --Start--> running --holder ends, Stop--> ended --Shutdown--> gone
//
// A running sandbox ends when its holder ends. Its record is in the state directory, so that a later agent finds the
// holder again. After a reboot there is neither a record nor a holder, and the CRI plugin reports the sandbox as not
// ready.
//
// Sandboxes of versions before this package have a pause container. The plugin keeps calling containerd's controller
// for them until they are removed.
package sandbox
