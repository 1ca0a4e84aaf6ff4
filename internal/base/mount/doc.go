// Package mount calls mount(2) and umount2(2) in a process of their own.
//
// Both may wait in the kernel for a server or a disk that does not answer, and
// no thread of this process can be taken out of that. So the call is made by a
// child, this binary again, which is killed when the caller waits no longer. The
// child shares the mount namespace; what it has mounted is found in the mount
// table, also when nobody has seen it succeed.
//
// It owns the children it starts and no mount: who asks for one owns it.
package mount
