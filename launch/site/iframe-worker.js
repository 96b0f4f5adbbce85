// Browsers refuse workers to a page that was opened as a file. Material's search needs
// one, so this one runs its script in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = `<script src="${address}"></script>`
      this.scope = new Promise((resolve) => {
        frame.onload = () => {
          // What the script posts is for the page, not for the frame.
          frame.contentWindow.postMessage = (data) =>
            this.dispatchEvent(new MessageEvent("message", { data }))
          resolve(frame.contentWindow)
        }
      })
      document.body.append(frame)
    }

    postMessage(data) {
      this.scope.then((scope) => scope.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
