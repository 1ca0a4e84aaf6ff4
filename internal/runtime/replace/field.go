package replace

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Field returns a field of a part of containerd, which can be read and set. names are the fields on the way to it, and
// may be private. The error says that there is no such field.
func Field[T any](owner any, names ...string) (*T, error) {
	at := reflect.ValueOf(owner)
	for _, name := range names {
		for at.Kind() == reflect.Pointer || at.Kind() == reflect.Interface {
			at = at.Elem()
		}
		if at.Kind() != reflect.Struct || !at.FieldByName(name).IsValid() {
			return nil, fmt.Errorf("containerd's %T has no field %s in %v", owner, name, names)
		}
		at = at.FieldByName(name)
	}
	if want := reflect.TypeFor[T](); !at.CanAddr() || at.Type() != want {
		return nil, fmt.Errorf("containerd's %T has no field %v of the type %s", owner, names, want)
	}
	return (*T)(unsafe.Pointer(at.UnsafeAddr())), nil
}
