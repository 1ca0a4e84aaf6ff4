// Package shutdown ends the pods of this node in order when the machine goes down
// (graceful node shutdown, KEP-2000 and KEP-2712).
//
// It owns the delay inhibitor at systemd-logind, the drop-in that gives it the
// time it needs, and a journal of what was stopped. It ends pods through pod.Stop
// like everybody else and never touches a container.
//
//	logind --PrepareForShutdown(true)--> Ready=False, new pods refused
//	                                        |
//	    groups of pods, lowest priority first: stop, wait for the pods and their
//	    volumes until the group's time is over, send their last statuses
//	                                        |
//	                              the inhibitor is released: the machine goes down
//	logind --PrepareForShutdown(false)--> the rest is left alone, the node is Ready
//
// An agent that comes up while the machine goes down first finds what an earlier one
// left running, and ends that in the same order. Other pods that come are refused:
// those of the API for good, those of manifests until the shutdown is called off.
//
// What was stopped stays stopped: as with the kubelet, such pods are Failed with
// the reason Terminated, or Succeeded if all their containers ended well. Those of sources other than the API start again when the
// agent does (podstatus.Statuses.Kept); a shutdown that was called off ends with
// the journal saying so.
//
// A machine that loses power or is told not to wait (reboot -f) is not seen here.
package shutdown
