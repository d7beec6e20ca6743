// A CUDA device without a driver: enough of one that tensors without memory can be traced for it.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
using namespace c10;

struct Guard : public impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device gpu() const { return Device(DeviceType::CUDA, 0); }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, gpu()); }
  Device exchangeDevice(Device) const override { return gpu(); }
  Device getDevice() const override { return gpu(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
};

struct Hooks : public at::CUDAHooksInterface {
  Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};

// Preferred to the hooks of a build of PyTorch that has CUDA.
at::RegistererCUDAHooksRegistry hooks(
    "CUDAHooks", c10::REGISTRY_PREFERRED, at::CUDAHooksRegistry(),
    at::RegistererCUDAHooksRegistry::DefaultCreator<Hooks>, "");
} // namespace

extern "C" void use_guard() {
  static Guard guard;
  impl::device_guard_impl_registry[(size_t)DeviceType::CUDA].store(&guard);
}
