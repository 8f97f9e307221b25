"""Chromium, to see pages as readers do."""

import base64
import contextlib
import shutil
import time

from selenium import webdriver

DESKTOP, PHONE = (1280, 900), (390, 844)
_NAMES = "chromium", "chromium-browser", "google-chrome"
_FLAGS = (
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--hide-scrollbars",
)


class Browser:
  """A window; its page may be seen in another size, and in the dark."""

  def __init__(self, driver):
    self._driver = driver
    self.run = driver.execute_script

  def see(self, size, scheme):
    """Sets the size of the window, and "light" or "dark"."""
    self._resize(*size)
    self.scheme(scheme)

  def scheme(self, scheme):
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    self._command("Emulation.setEmulatedMedia", features=media)

  def open(self, url):
    self._driver.get(url)

  def ask(self, texts):
    """Sends texts by the form of a server's page, and awaits the answer."""
    self.run(
      "const areas = document.querySelectorAll('textarea');"
      "areas.forEach((area, i) => { area.value = arguments[0][i]; });"
      "document.querySelector('button').click();",
      texts,
    )
    self.wait("document.getElementById('result').childElementCount > 0")

  def wait(self, condition):
    deadline = time.monotonic() + 60
    while not self.run(f"return {condition};"):
      assert time.monotonic() < deadline, condition
      time.sleep(0.02)

  def fit(self, size, most=9000):
    """Makes the window as high as the page, so that nothing is left out."""
    height = self.run("return document.documentElement.scrollHeight")
    self._resize(size[0], min(max(height, size[1]), most))
    # A busy machine lays the page out two frames later.
    self.run(
      "return new Promise(done => requestAnimationFrame(() => "
      "requestAnimationFrame(done)));"
    )

  def picture(self, area=None):
    """A PNG of the window, or of an area (left, top, width, height)."""
    options = {}
    if area:
      x, y, width, height = area
      clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
      options = {"clip": clip, "captureBeyondViewport": True}
    found = self._command("Page.captureScreenshot", **options)
    return base64.b64decode(found["data"])

  def _resize(self, width, height):
    self._command(
      "Emulation.setDeviceMetricsOverride",
      width=width,
      height=height,
      deviceScaleFactor=1,
      mobile=width < 600,
    )

  def _command(self, name, **options):
    return self._driver.execute_cdp_cmd(name, options)


@contextlib.contextmanager
def running(folder):
  """A Browser with a fresh profile in the folder."""
  binary = next(filter(None, map(shutil.which, _NAMES)), None)
  driver_path = shutil.which("chromedriver")
  if not (binary and driver_path):
    raise RuntimeError("install Debian's chromium and chromium-driver")
  options = webdriver.ChromeOptions()
  options.binary_location = binary
  for flag in (*_FLAGS, f"--user-data-dir={folder}"):
    options.add_argument(flag)
  service = webdriver.ChromeService(driver_path)
  driver = webdriver.Chrome(options=options, service=service)
  try:
    yield Browser(driver)
  finally:
    driver.quit()
