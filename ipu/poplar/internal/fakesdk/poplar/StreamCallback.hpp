#ifndef FAKE_POPLAR_STREAMCALLBACK_HPP
#define FAKE_POPLAR_STREAMCALLBACK_HPP

#include <memory>
#include <type_traits>
#include <utility>

namespace poplar {

class StreamCallbackBase {
public:
  enum class Result { Success, NotAvailable };
  virtual ~StreamCallbackBase() = default;
  virtual void complete() {}
  virtual void invalidatePrefetched() {}
};

// StreamCallback is the host's side of a stream.
class StreamCallback : public StreamCallbackBase {
public:
  virtual Result prefetch(void *p) = 0;
  virtual void fetch(void *p) = 0;
};

// LegacyStreamCallback is a StreamCallback without prefetching.
class LegacyStreamCallback : public StreamCallback {
public:
  Result prefetch(void *) final { return Result::NotAvailable; }
  void complete() final {}
  void invalidatePrefetched() final {}
};

// StreamCallbackHandle owns a StreamCallback. It is made from one, or from
// anything that can be called with a pointer.
class StreamCallbackHandle {
public:
  StreamCallbackHandle() = delete;
  StreamCallbackHandle(StreamCallbackHandle &&) noexcept = default;
  StreamCallbackHandle &operator=(StreamCallbackHandle &&) noexcept = default;
  StreamCallbackHandle(const StreamCallbackHandle &) = delete;
  StreamCallbackHandle &operator=(const StreamCallbackHandle &) = delete;

  template <class Callback,
            typename = typename std::enable_if<std::is_base_of<StreamCallback, Callback>::value>::type>
  StreamCallbackHandle(std::unique_ptr<Callback> c) : callback(std::move(c)) {}

  template <class F, typename = decltype(std::declval<F &>()(static_cast<void *>(nullptr))),
            typename = typename std::enable_if<!std::is_same<typename std::decay<F>::type, StreamCallbackHandle>::value>::type>
  StreamCallbackHandle(F &&f) : callback(new Function<typename std::decay<F>::type>(std::forward<F>(f))) {}

  std::unique_ptr<StreamCallback> fakeRelease() { return std::move(callback); }

private:
  template <class F> class Function : public LegacyStreamCallback {
  public:
    explicit Function(F f) : f(std::move(f)) {}
    void fetch(void *p) override { f(p); }

  private:
    F f;
  };
  std::unique_ptr<StreamCallback> callback;
};

} // namespace poplar

#endif
