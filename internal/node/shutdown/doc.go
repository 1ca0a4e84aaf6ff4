// Package shutdown ends the pods of this node in order when the machine shuts down (graceful node shutdown, KEP-2000
// and KEP-2712).
//
// It owns the delay inhibitor at systemd-logind, the drop-in that lets logind wait long enough, and a journal of the
// pods it stopped. It ends pods through pod.Stop and never touches a container.
//
//	logind --PrepareForShutdown(true)--> Ready=False, new pods rejected
//	                                        |
//	    groups of pods, lowest priority first: stop, wait for the pods and their
//	    volumes until the group's time is over, send their last statuses
//	                                        |
//	                              the inhibitor is released: the machine shuts down
//	logind --PrepareForShutdown(false)--> remaining pods continue, the node is Ready
//
// An agent that starts during a shutdown first finds the pods that an earlier agent left running, and ends them in the
// same order. It rejects new pods: pods of the API server permanently, pods of manifests until the shutdown is
// cancelled.
//
// Stopped pods stay stopped. As with the kubelet, they are Failed with the reason Terminated, or Succeeded if all their
// containers succeeded. Pods of sources other than the API server start again with the next agent
// (podstatus.Statuses.Kept). The journal also records a cancelled shutdown.
//
// A power loss or a forced reboot (reboot -f) is not noticed here.
package shutdown
