package usage

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
)

// The condition of a volume is an alpha part of CSI 1.9, which Kubernetes 1.36 uses. CSI 1.13 has removed it, so that
// the numbers are here instead of in the generated code.
const (
	// Condition is the capability VOLUME_CONDITION of the node service.
	Condition csi.NodeServiceCapability_RPC_Type = 4

	fieldCondition = 2 // volume_condition of NodeGetVolumeStatsResponse
	fieldAbnormal  = 1 // of VolumeCondition
	fieldMessage   = 2 // of VolumeCondition
)

// Health is the condition of a volume, as its driver reports it.
type Health struct {
	Abnormal bool
	Message  string
}

// ConditionOf returns the condition of the volume in a driver's answer. An answer without one is a normal condition.
func ConditionOf(answer *csi.NodeGetVolumeStatsResponse) (c Health) {
	fields(answer.ProtoReflect().GetUnknown(), func(number protowire.Number, value []byte, _ uint64) {
		if number == fieldCondition {
			fields(value, func(number protowire.Number, value []byte, varint uint64) {
				if number == fieldAbnormal {
					c.Abnormal = protowire.DecodeBool(varint)
				}
				if number == fieldMessage {
					c.Message = string(value)
				}
			})
		}
	})
	return c
}

// fields calls visit for each field of an encoded message, up to the first fault. value is the content of a field of
// bytes, varint the content of a number.
func fields(message []byte, visit func(number protowire.Number, value []byte, varint uint64)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		var value []byte
		var varint uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			varint, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return
		}
		message = message[n:]
		visit(number, value, varint)
	}
}
