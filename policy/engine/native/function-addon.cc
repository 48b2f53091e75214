// The TensorFlow addon of Terminal-RSI: tfjs-node's own binding, with five methods more.
//
//   addFunction(bytes: Uint8Array): void    registers a serialized FunctionDef in the eager context
//   removeFunction(name: string): void      forgets it
//   setTensorFloat32(allowed: boolean): void  whether matrix products of a GPU, in kernels and in XLA, may round their inputs to 10 bits
//   collectGraphs(on: boolean): void        from now on, keeps the graphs that functions become, nodes with their devices
//   takeGraphs(): Uint8Array                those kept so far, as a serialized RunMetadata
//
// A registered function runs by its name through `executeOp` like any operation. That is how a whole training step or
// decode step becomes one call (policy/engine/). tfjs-node's sources are compiled here as they are: they are included
// instead of linked, so that their module and ours are one.
#include <node_api.h>

// libtensorflow_framework exports it; the header (xla/tsl/platform/tensor_float_32_utils.h) is not among those that setup unpacks.
namespace tsl {
void enable_tensor_float_32_execution(bool enabled);
}

// tfjs-node registers its module at the end of tfjs_binding.cc; ours, below, calls its initialiser instead.
#undef NAPI_MODULE
#define NAPI_MODULE(name, initialiser)
#include "binding/tfjs_binding.cc"
#include "tensorflow/c/eager/c_api_experimental.h"
#undef NAPI_MODULE

namespace terminal_rsi {

// The context is a private member. An explicit instantiation may name private members, and its friend may use them.
template <auto Member>
struct ContextMember {
  friend TFE_Context *ContextOf(tfnodejs::TFJSBackend &backend) { return backend.*Member; }
};
TFE_Context *ContextOf(tfnodejs::TFJSBackend &backend);
template struct ContextMember<&tfnodejs::TFJSBackend::tfe_context_>;

napi_value AddFunction(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value argument;
  bool is_typed_array = false;
  if (napi_get_cb_info(env, info, &count, &argument, nullptr, nullptr) != napi_ok || count != 1 ||
      napi_is_typedarray(env, argument, &is_typed_array) != napi_ok || !is_typed_array) {
    napi_throw_type_error(env, nullptr, "addFunction: expected a Uint8Array");
    return nullptr;
  }
  napi_typedarray_type type;
  size_t length;
  void *data;
  napi_get_typedarray_info(env, argument, &type, &length, &data, nullptr, nullptr);
  if (type != napi_uint8_array) {
    napi_throw_type_error(env, nullptr, "addFunction: expected a Uint8Array");
    return nullptr;
  }
  void *backend = nullptr;
  napi_get_instance_data(env, &backend);
  TF_Status *status = TF_NewStatus();
  TFE_ContextAddFunctionDef(ContextOf(*static_cast<tfnodejs::TFJSBackend *>(backend)), static_cast<const char *>(data), length, status);
  if (TF_GetCode(status) != TF_OK) napi_throw_error(env, nullptr, TF_Message(status));
  TF_DeleteStatus(status);
  return nullptr;
}

napi_value RemoveFunction(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value argument;
  char name[256];
  size_t length;
  if (napi_get_cb_info(env, info, &count, &argument, nullptr, nullptr) != napi_ok || count != 1 ||
      napi_get_value_string_utf8(env, argument, name, sizeof(name), &length) != napi_ok) {
    napi_throw_type_error(env, nullptr, "removeFunction: expected a string");
    return nullptr;
  }
  void *backend = nullptr;
  napi_get_instance_data(env, &backend);
  TF_Status *status = TF_NewStatus();
  TFE_ContextRemoveFunction(ContextOf(*static_cast<tfnodejs::TFJSBackend *>(backend)), name, status);
  if (TF_GetCode(status) != TF_OK) napi_throw_error(env, nullptr, TF_Message(status));
  TF_DeleteStatus(status);
  return nullptr;
}

bool BoolArgument(napi_env env, napi_callback_info info, const char *problem, bool *value) {
  size_t count = 1;
  napi_value argument;
  if (napi_get_cb_info(env, info, &count, &argument, nullptr, nullptr) == napi_ok && count == 1 &&
      napi_get_value_bool(env, argument, value) == napi_ok)
    return true;
  napi_throw_type_error(env, nullptr, problem);
  return false;
}

napi_value SetTensorFloat32(napi_env env, napi_callback_info info) {
  bool allowed;
  if (BoolArgument(env, info, "setTensorFloat32: expected a boolean", &allowed)) tsl::enable_tensor_float_32_execution(allowed);
  return nullptr;
}

napi_value CollectGraphs(napi_env env, napi_callback_info info) {
  bool on;
  if (!BoolArgument(env, info, "collectGraphs: expected a boolean", &on)) return nullptr;
  void *backend = nullptr;
  napi_get_instance_data(env, &backend);
  TFE_Context *context = ContextOf(*static_cast<tfnodejs::TFJSBackend *>(backend));
  if (on)
    TFE_ContextEnableGraphCollection(context);
  else
    TFE_ContextDisableGraphCollection(context);
  return nullptr;
}

napi_value TakeGraphs(napi_env env, napi_callback_info) {
  void *backend = nullptr;
  napi_get_instance_data(env, &backend);
  TF_Status *status = TF_NewStatus();
  TF_Buffer *buffer = TF_NewBuffer();
  TFE_ContextExportRunMetadata(ContextOf(*static_cast<tfnodejs::TFJSBackend *>(backend)), buffer, status);
  napi_value bytes = nullptr;
  if (TF_GetCode(status) != TF_OK)
    napi_throw_error(env, nullptr, TF_Message(status));
  else
    napi_create_buffer_copy(env, buffer->length, buffer->data, nullptr, &bytes);
  TF_DeleteBuffer(buffer);
  TF_DeleteStatus(status);
  return bytes;
}

napi_value Initialise(napi_env env, napi_value exports) {
  exports = tfnodejs::InitTFNodeJSBinding(env, exports);
  napi_property_descriptor methods[] = {
      {"addFunction", nullptr, AddFunction, nullptr, nullptr, nullptr, napi_default, nullptr},
      {"removeFunction", nullptr, RemoveFunction, nullptr, nullptr, nullptr, napi_default, nullptr},
      {"setTensorFloat32", nullptr, SetTensorFloat32, nullptr, nullptr, nullptr, napi_default, nullptr},
      {"collectGraphs", nullptr, CollectGraphs, nullptr, nullptr, nullptr, napi_default, nullptr},
      {"takeGraphs", nullptr, TakeGraphs, nullptr, nullptr, nullptr, napi_default, nullptr},
  };
  napi_define_properties(env, exports, sizeof(methods) / sizeof(methods[0]), methods);
  return exports;
}

}  // namespace terminal_rsi

NAPI_MODULE_INIT() { return terminal_rsi::Initialise(env, exports); }
